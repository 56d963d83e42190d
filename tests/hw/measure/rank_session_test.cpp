#include "hw/measure/rank_session.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

// Rank 0 of two; the other one sees twice as much of everything.
class TwoRanks : public ControlGroup {
  public:
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int ranks() const override { return 2; }
    void barrier() override {}
    void broadcast_from_first(std::span<std::int64_t>) override {}
    std::vector<double> gather_to_first(std::span<const double> own) override {
        std::vector<double> all(own.begin(), own.end());
        for (const double value : own) {
            all.push_back(2 * value);
        }
        return all;
    }
};

class Connection : public RankConnection {
  public:
    ControlGroup& control() override { return control_; }
    [[nodiscard]] std::string gpu() const override { return ""; }
    std::unique_ptr<RankDevice> device(const Scenario&, const Workload&,
                                       const SyncSettings&) override {
        return nullptr;
    }
    std::unique_ptr<MessageDevice> messages() override { return nullptr; }
    std::unique_ptr<TrainingDevice> training() override { return nullptr; }
    std::unique_ptr<BatchNormDevice> batch_norm() override { return nullptr; }

  private:
    TwoRanks control_;
};

TEST_CASE("rounds take every item that is wanted, and say which, how far, and of how many") {
    std::vector<std::string> shown;
    RankSession session(std::make_unique<Connection>(),
                        [&](const std::string& text) { shown.push_back(text); });
    session.expect(9, 4);
    std::vector<std::pair<std::int64_t, std::size_t>> taken;
    session.take_rounds(
        {.rounds = 2, .seed = 1}, 3, [](std::size_t item) { return std::to_string(item); },
        [&](std::int64_t round, std::size_t item) { taken.emplace_back(round, item); },
        [](std::int64_t round, std::size_t item) { return round == 1 || item == 2; });
    std::vector<std::string> expected{"items 4 9 2, round 1 of 2"};
    for (const std::int32_t item : order_of_round(3, 1, 1)) {
        expected.push_back("items " + std::to_string(4 + expected.size()) + " 9 " +
                           std::to_string(item) + ", round 2 of 2");
    }
    CHECK(shown == expected);
    REQUIRE(taken.size() == 4);
    CHECK(taken.front() == std::pair<std::int64_t, std::size_t>{0, 2});
    session.show_again();
    CHECK(shown.back().starts_with("items 8 9 "));
    // A run that ends by the clock says so; how long it took is nobody's to assert.
    session.expect_time(std::chrono::seconds(90));
    session.show("compute alone");
    CHECK(shown.back().starts_with("ms "));
    CHECK(shown.back().ends_with(" 90000 compute alone"));
}

TEST_CASE("rank 0 learns what all ranks saw, rank by rank and the most of it") {
    const RankSession session(std::make_unique<Connection>());
    const std::vector<double> own{1, -3};
    CHECK(session.gather(own) == std::vector<std::vector<double>>{{1, -3}, {2, -6}});
    CHECK(session.greatest(own) == std::vector<double>{2, 0});
    using std::chrono::microseconds;
    CHECK(session.slowest_us({microseconds{5}, microseconds{7}}) == std::vector<double>{10, 14});
    CHECK(session.gather({}) == std::vector<std::vector<double>>(2));
    CHECK(session.greatest({}).empty());
}

}  // namespace
}  // namespace bucketwise

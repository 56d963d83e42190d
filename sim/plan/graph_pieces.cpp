#include "sim/plan/graph_pieces.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

namespace bucketwise {
namespace {

constexpr std::int32_t next_piece = -1;

// The order of the engine's queue: a std::priority_queue where gradients come before the next piece
// and all else is equal.
std::vector<std::int32_t> handed_out(const std::vector<std::int32_t>& handed_in) {
    const auto after = [](std::int32_t a, std::int32_t b) {
        return a == next_piece && b != next_piece;
    };
    std::vector<std::int32_t> heap;
    for (const std::int32_t one : handed_in) {
        heap.push_back(one);
        std::push_heap(heap.begin(), heap.end(), after);
    }
    std::vector<std::int32_t> order;
    for (; !heap.empty(); heap.pop_back()) {
        std::pop_heap(heap.begin(), heap.end(), after);
        if (heap.back() != next_piece) {
            order.push_back(heap.back());
        }
    }
    return order;
}

std::string_view module_of(std::string_view parameter) {
    return parameter.substr(0, parameter.rfind('.'));
}

class PieceBuilder {
  public:
    PieceBuilder(const Workload& workload, const PieceLimits& limits)
        : workload_(workload), limits_(limits) {
        result_.counts.resize(workload.backward.size(), 0);
    }

    GraphPieces result() {
        std::size_t ready = 0;
        for (std::size_t i = 0; i < workload_.backward.size(); ++i) {
            const TimedOperation& operation = workload_.backward[i];
            const auto count = static_cast<std::size_t>(operation.ready_count);
            if (count > 0 || operation.used_before > Bytes{0}) {
                if (is_full()) {
                    close(NextPiece::follows);
                }
                add(i, ready, count);
            }
            ready += count;
        }
        // The rest of backward needs no parameters.
        last_ = workload_.backward.empty() ? 0 : workload_.backward.size() - 1;
        close(NextPiece::none);
        return {std::move(result_), same_pieces_};
    }

  private:
    enum class NextPiece : std::uint8_t { follows, none };

    // Asked before an operation is added. Records the caps with the same answer.
    bool is_full() {
        if (result_.pieces == 0 && size_ >= limits_.first) {
            return true;
        }
        const bool full = size_ >= limits_.cap;
        same_pieces_ = common(same_pieces_, full ? CapRange{Bytes{1}, size_}
                                                 : CapRange{size_ + Bytes{1}, std::nullopt});
        return full;
    }

    void add(std::size_t operation, std::size_t ready, std::size_t count) {
        for (std::size_t i = ready; i < ready + count; ++i) {
            const std::int32_t gradient = workload_.readiness[i];
            gradients_.push_back({gradient, operation});
            size_ += gradient_of(gradient).size();
        }
        size_ += workload_.backward[operation].used_before;
        last_ = operation;
    }

    void close(NextPiece next) {
        std::vector<std::int32_t> handed_in = in_order_of_use();
        if (next == NextPiece::follows) {
            handed_in.insert(handed_in.begin(), next_piece);
        }
        const std::vector<std::int32_t> order = handed_out(handed_in);
        result_.order.insert(result_.order.end(), order.begin(), order.end());
        if (!order.empty()) {
            result_.counts[last_] = static_cast<std::int32_t>(order.size());
        }
        ++result_.pieces;
        gradients_.clear();
        size_ = Bytes{0};
    }

    // Forward's order, module by module, and within a module the order of registration.
    [[nodiscard]] std::vector<std::int32_t> in_order_of_use() const {
        std::vector<std::int32_t> order;
        for (auto end = gradients_.rbegin(); end != gradients_.rend();) {
            const auto begin = end;
            end = std::find_if(begin, gradients_.rend(),
                               [&](const Ready& one) { return !are_together(*begin, one); });
            const std::size_t first = order.size();
            std::transform(begin, end, std::back_inserter(order),
                           [](const Ready& one) { return one.gradient; });
            std::sort(order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
        }
        return order;
    }

    struct Ready {
        std::int32_t gradient = 0;
        std::size_t operation = 0;
    };

    [[nodiscard]] bool are_together(const Ready& a, const Ready& b) const {
        const std::string_view module = module_of(gradient_of(a.gradient).name);
        return a.operation == b.operation || (module.size() < gradient_of(a.gradient).name.size() &&
                                              module == module_of(gradient_of(b.gradient).name));
    }

    [[nodiscard]] const Gradient& gradient_of(std::int32_t index) const {
        return workload_.gradients[static_cast<std::size_t>(index)];
    }

    const Workload& workload_;
    const PieceLimits& limits_;
    PieceReadiness result_;
    std::vector<Ready> gradients_;  // of the open piece
    Bytes size_;
    std::size_t last_ = 0;
    CapRange same_pieces_;
};

}  // namespace

GraphPieces ready_in_pieces(const Workload& workload, const PieceLimits& limits) {
    return PieceBuilder(workload, limits).result();
}

}  // namespace bucketwise

// The meeting place of the ranks of a job: a key-value store that all of them reach.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hw/gloo/meeting/peer_failure.h"
#include "sim/base/interface.h"

namespace bucketwise {

// One of Gloo's stores, asked without blocking, so that a waiting rank can do other things.
class KeyValueStore : public Interface {
  public:
    virtual bool has(const std::string& key) = 0;
    // The key must not be there yet.
    virtual void set(const std::string& key, const std::vector<char>& value) = 0;
    // The key must be there.
    virtual std::vector<char> get(const std::string& key) = 0;
    // Removes what this process has set, as far as it can: the next run then finds the store empty.
    virtual void forget_own_keys() noexcept = 0;
    // Throws std::runtime_error that names the store when it is no longer there.
    virtual void check_usable() = 0;
};

constexpr std::string_view redis_scheme = "redis://";

// `place` is a directory or "redis://HOST:PORT". Throws InputError when it is neither, and
// std::runtime_error when it cannot be used.
std::unique_ptr<KeyValueStore> open_store(const std::string& place);

// For ranks that share no file system. One source or the other implements it: with hiredis and a
// Gloo that was built with it, or with the reason why there is none.
std::unique_ptr<KeyValueStore> open_redis_store(const std::string& place);

// The common part of all stores. Store: one of Gloo's.
template <typename Store>
class StoreOfGloo : public KeyValueStore {
  public:
    bool has(const std::string& key) override {
        bool found = false;
        with_store_errors([&] { found = store_->check({key}); });
        return found;
    }
    void set(const std::string& key, const std::vector<char>& value) override {
        with_store_errors([&] { store_->set(key, value); });
    }
    std::vector<char> get(const std::string& key) override {
        std::vector<char> value;
        with_store_errors([&] { value = store_->get(key); });
        return value;
    }

  protected:
    explicit StoreOfGloo(std::string place) : place_(std::move(place)) {}

    template <typename Step>
    void with_store_errors(const Step& step) {
        try {
            with_peer_failures(place_, step);
        } catch (const PeerFailure& failure) {
            explain_failure();
            throw std::runtime_error(failure.what());
        }
    }
    // Throws std::runtime_error where it finds a better reason than Gloo gives.
    virtual void explain_failure() = 0;

    std::string place_;
    std::unique_ptr<Store> store_;
};

// The keys of one job, waited for no longer than until a deadline. Gloo sees only this one.
class JobStore final : public gloo::rendezvous::Store {
  public:
    using Deadline = std::chrono::steady_clock::time_point;

    // `store` outlives this.
    JobStore(KeyValueStore& store, std::string prefix, Deadline deadline);

    void set(const std::string& key, const std::vector<char>& value) override;
    std::vector<char> get(const std::string& key) override;
    // Throws PeerFailure at the deadline, whatever the timeout.
    void wait(const std::vector<std::string>& keys) override;
    void wait(const std::vector<std::string>& keys,
              const std::chrono::milliseconds& timeout) override;

    bool has(const std::string& key);

    // Those of `keys` that are still missing at the deadline.
    std::vector<std::string> missing_at_deadline(std::vector<std::string> keys);

  private:
    KeyValueStore& store_;
    std::string prefix_;
    Deadline deadline_;
};

}  // namespace bucketwise

// Numbered texts, made by several threads. The texts, and the error thrown where making one fails,
// do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"

namespace bucketwise {

// Makes texts by number; each thread has its own.
using TextMaker = std::function<std::string(std::int64_t number)>;

class ParallelTexts {
  public:
    // Precondition (asserted): count >= 0, threads >= 1.
    ParallelTexts(std::int64_t count, std::int64_t threads)
        : texts_(static_cast<std::size_t>(count)), threads_(threads), first_failed_(count) {
        invariant(count >= 0 && threads >= 1, "there are threads to make texts");
    }

    // Each thread calls `new_maker` once; the caller's calls `progress` with the share of texts
    // begun. Throws the error of the first text that failed; later texts may not have been tried.
    std::vector<std::string> make(const std::function<TextMaker()>& new_maker,
                                  const std::function<void(double)>& progress) {
        const std::int64_t threads = std::min(threads_, std::ssize(texts_));
        std::vector<std::jthread> others;
        for (std::int64_t i = 1; i < threads; ++i) {
            others.emplace_back([&] { work(new_maker, [](double) {}); });
        }
        work(new_maker, progress);
        others.clear();
        if (failure_) {
            std::rethrow_exception(failure_);
        }
        return std::move(texts_);
    }

  private:
    void work(const std::function<TextMaker()>& new_maker,
              const std::function<void(double)>& progress) {
        std::int64_t number = next_++;
        try {
            const TextMaker maker = new_maker();
            for (; number < first_failed_; number = next_++) {
                texts_[static_cast<std::size_t>(number)] = maker(number);
                progress(static_cast<double>(number) / static_cast<double>(texts_.size()));
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (number < first_failed_) {
                first_failed_ = number;
                failure_ = std::current_exception();
            }
        }
    }

    std::vector<std::string> texts_;
    std::int64_t threads_;
    std::atomic<std::int64_t> next_{0};
    std::atomic<std::int64_t> first_failed_;  // beyond the last: none
    std::mutex mutex_;                        // of failure_, and of writing first_failed_
    std::exception_ptr failure_;
};

}  // namespace bucketwise

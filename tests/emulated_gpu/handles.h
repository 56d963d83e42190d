// The objects behind the handles of one library's type.
#pragma once

#include <deque>
#include <set>
#include <utility>

namespace bucketwise::emulated {

// Objects stay until the process ends, so that a thread that still works on a destroyed one does no
// harm and a dead handle is known to be dead.
template <typename T>
class Handles {
  public:
    template <typename... Arguments>
    T* create(Arguments&&... arguments) {
        T* created = &all_.emplace_back(std::forward<Arguments>(arguments)...);
        live_.insert(created);
        return created;
    }
    [[nodiscard]] bool is_live(const T* object) const { return live_.count(object) > 0; }
    void destroy(const T* object) { live_.erase(object); }
    [[nodiscard]] std::deque<T>& all() { return all_; }

  private:
    std::deque<T> all_;
    std::set<const T*> live_;
};

}  // namespace bucketwise::emulated

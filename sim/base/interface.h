// What is used through a pointer or reference to its base.
#pragma once

namespace bucketwise {

class Interface {
  public:
    virtual ~Interface() = default;
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;

  protected:
    Interface() = default;
};

}  // namespace bucketwise

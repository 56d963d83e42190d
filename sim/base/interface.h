// A base class for use through pointers and references.
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

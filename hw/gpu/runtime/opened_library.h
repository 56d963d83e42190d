// A library that is opened when the program first needs it, not when it starts: most commands need
// no GPU, loading cuBLAS takes longer than most of them, and not every machine has one.
#pragma once

#include <stdexcept>
#include <string>

namespace bucketwise {

// It is not there, or is not what it is called.
class LibraryError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Stays open until the program ends: what a library has started may still run in it.
class OpenedLibrary {
  public:
    // `name`: what people call it, for messages. `file`: its soname, which is looked for where the
    // system looks for every library (LD_LIBRARY_PATH, then what ldconfig knows). Throws
    // LibraryError.
    OpenedLibrary(std::string name, const std::string& file);

    // A function of it, as whatever pointer it is assigned to.
    class Function {
      public:
        explicit Function(void* address) : address_(address) {}
        template <typename Signature>
        operator Signature*() const {
            return reinterpret_cast<Signature*>(address_);
        }

      private:
        void* address_;
    };
    // Throws LibraryError if the library has none of this name.
    [[nodiscard]] Function operator[](const char* function) const;

  private:
    std::string name_;
    void* library_;
};

}  // namespace bucketwise

// Nothing but the headers that all tests share: compiled for its precompiled header.
#include "tests/catch.h"

// Catch2, the v3 of newer systems or the v2 of Debian 12.
#pragma once

// An assertion does not catch what its expression throws: the test case does.
#define CATCH_CONFIG_FAST_COMPILE

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

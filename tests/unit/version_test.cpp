// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <zero/version.hpp>

TEST_CASE("the version number orders releases") {
  STATIC_REQUIRE(zero::version_number / 1'000'000 == zero::version_major);
  STATIC_REQUIRE(zero::version_number / 1'000 % 1'000 == zero::version_minor);
  STATIC_REQUIRE(zero::version_number % 1'000 == zero::version_patch);
}

// SPDX-License-Identifier: Apache-2.0
// links: plan_core
#include "quantities.hpp"

#include <catch2/catch.hpp>

#include "program.hpp"

using namespace planning;
using example::usage_failure;

TEST_CASE("numbers of parameters are read exactly") {
  REQUIRE(parse_count("1") == 1);
  REQUIRE(parse_count("124000000") == 124'000'000);
  REQUIRE(parse_count("7.5e9") == 7'500'000'000);
  REQUIRE(parse_count("7.5E+9") == 7'500'000'000);
  REQUIRE(parse_count("75e8") == 7'500'000'000);
  REQUIRE(parse_count("7.5B") == 7'500'000'000);
  REQUIRE(parse_count("128B") == 128'000'000'000);
  REQUIRE(parse_count("1T") == 1'000'000'000'000);
  REQUIRE(parse_count("1.5M") == 1'500'000);
  REQUIRE(parse_count("20K") == 20'000);
  REQUIRE(parse_count("1000e-3") == 1);
  REQUIRE(parse_count("1.50000000000000000B") == 1'500'000'000);
  REQUIRE(parse_count("999999999999999") == 999'999'999'999'999);
  REQUIRE(parse_count("1e15") == 1'000'000'000'000'000);
}

TEST_CASE("what is no number of parameters is refused") {
  for (const char* text : {"",
                           "0",
                           "-1",
                           "-7B",
                           "+7",
                           "7.5",
                           "1e-1",
                           "1.0001K",
                           "7.5X",
                           "7.5 B",
                           "7.5b",
                           "B",
                           ".",
                           "e9",
                           "1e",
                           "1e9e9",
                           "0x10",
                           "1e16",
                           "1e999999999999",
                           "99999999999999999999999",
                           "1.2.3",
                           "nan",
                           "inf",
                           "7,5B",
                           "10GB"}) {
    CAPTURE(text);
    REQUIRE_THROWS_AS(parse_count(text), usage_failure);
  }
}

TEST_CASE("amounts of memory know powers of ten and of two") {
  REQUIRE(parse_bytes("80GB") == 80'000'000'000);
  REQUIRE(parse_bytes("80GiB") == 85'899'345'920);
  REQUIRE(parse_bytes("1.5KiB") == 1536);
  REQUIRE(parse_bytes("0.5MiB") == 524'288);
  REQUIRE(parse_bytes("32e9") == 32'000'000'000);
  REQUIRE(parse_bytes("512") == 512);
  REQUIRE(parse_bytes("512B") == 512);
  REQUIRE(parse_bytes("1TB") == 1'000'000'000'000);
  REQUIRE(parse_bytes("1TiB") == 1'099'511'627'776);
  REQUIRE(parse_bytes("7MB") == 7'000'000);
  REQUIRE(parse_bytes("7KB") == 7'000);
  REQUIRE(parse_bytes("0.1GiB") == 107'374'182);  // parts of a byte are dropped
}

TEST_CASE("what is no amount of memory is refused") {
  for (const char* text :
       {"", "0GB", "-1GB", "80G", "80gb", "80 GB", "80GBB", "2000000TB", "1e60", "0.1B", "80T"}) {
    CAPTURE(text);
    REQUIRE_THROWS_AS(parse_bytes(text), usage_failure);
  }
}

TEST_CASE("decimals are rounded half away from zero and lose trailing zeros") {
  REQUIRE(decimal(0, 7, 2) == "0");
  REQUIRE(decimal(1, 2, 0) == "1");
  REQUIRE(decimal(4125, 100, 1) == "41.3");
  REQUIRE(decimal(4124, 100, 1) == "41.2");
  REQUIRE(decimal(1, 8, 2) == "0.13");
  REQUIRE(decimal(1, 3, 2) == "0.33");
  REQUIRE(decimal(2, 3, 2) == "0.67");
  REQUIRE(decimal(999, 1000, 2) == "1");
  REQUIRE(decimal(9'996, 100, 1) == "100");
  REQUIRE(decimal(105, 100, 2) == "1.05");
  REQUIRE(decimal(1'000'000'000'000'000'000, 3, 1) == "333333333333333333.3");
}

TEST_CASE("bytes are shown in the unit that suits them") {
  REQUIRE(readable_bytes(0) == "0 B");
  REQUIRE(readable_bytes(999) == "999 B");
  REQUIRE(readable_bytes(1'000) == "1 kB");
  REQUIRE(readable_bytes(1'850'000) == "1.9 MB");
  REQUIRE(readable_bytes(31'406'250'000) == "31.4 GB");
  REQUIRE(readable_bytes(2'000'000'000'000'000) == "2000 TB");
}

// SPDX-License-Identifier: Apache-2.0
#include "support/typed_engine.hpp"

namespace zero::test {

ZERO_TEST_ENGINES_OF_TWO_STAGES(bf16_mixed, adam)
ZERO_TEST_ENGINES_OF_TWO_STAGES(bf16_mixed, sgd)
ZERO_TEST_ENGINES_OF_TWO_STAGES(bf16_mixed, lion)

}  // namespace zero::test

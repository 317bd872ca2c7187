// SPDX-License-Identifier: Apache-2.0
#include "support/typed_engine.hpp"

namespace zero::test {

ZERO_TEST_ENGINES_OF_TWO_STAGES(fp32, adam)
ZERO_TEST_ENGINES_OF_TWO_STAGES(fp32, sgd)
ZERO_TEST_ENGINES_OF_TWO_STAGES(fp32, lion)

}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
#include "support/typed_engine.hpp"

namespace zero::test {

ZERO_TEST_ENGINES_OF_ALL_STAGES(fp32, adamw)

}  // namespace zero::test

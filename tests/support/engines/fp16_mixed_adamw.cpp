// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include "support/typed_engine.hpp"

namespace zero::test {

ZERO_TEST_ENGINES_OF_ALL_STAGES(fp16_mixed, adamw)

}  // namespace zero::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

template <class S, class P, class C, class O>
class engine;
template <class T, class Role, class Space>
class range;
class model_layout;
struct plan;
struct ledger;

}  // namespace zero

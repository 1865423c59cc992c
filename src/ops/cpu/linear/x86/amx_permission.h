// Whether the processor's tiles may be used.
#pragma once

namespace winnow::ops::cpu {

/// Whether this CPU multiplies tiles of bf16 (AMX). Asks the system, which must know that the
/// process wants to, for the permission.
bool may_use_tiles();

}  // namespace winnow::ops::cpu

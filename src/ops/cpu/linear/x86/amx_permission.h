// Permission to use the CPU's tiles.
#pragma once

namespace winnow::ops::cpu {

/// Whether this CPU multiplies tiles of bf16 (AMX). Requests the permission from the system, which
/// a process needs before it uses them.
bool may_use_tiles();

}  // namespace winnow::ops::cpu

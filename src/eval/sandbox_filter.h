// The system calls that a sandboxed program may make.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace winnow::eval {

/// A seccomp program for this machine's architecture; empty if it is not supported.
std::vector<sock_filter> sandbox_filter();

}  // namespace winnow::eval

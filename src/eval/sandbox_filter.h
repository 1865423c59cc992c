// Which system calls a sandboxed program may make.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace winnow::eval {

/// A seccomp program for this machine's kind of processor; empty where none is known.
std::vector<sock_filter> sandbox_filter();

}  // namespace winnow::eval

// The memory bandwidth of this machine.
#pragma once

namespace winnow {

/// Bytes per second that all threads together read from a buffer far larger than the caches: the
/// best of several passes.
double measure_read_bandwidth();

}  // namespace winnow

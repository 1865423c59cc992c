// The CUDA device that a rank uses.
#pragma once

namespace winnow::parallel {

/// Rank `rank`'s device, if the ranks take devices from `first` on: threads of one process by their
/// rank; a process by its place on its machine, unless its launcher shows it one device only.
/// Throws Error that names the rank if a process has no such device.
int device_of_rank(int first, int rank);

}  // namespace winnow::parallel

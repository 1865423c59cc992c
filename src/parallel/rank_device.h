// The CUDA device that a rank uses.
#pragma once

#include "parallel/launched_as.h"

namespace winnow::parallel {

/// The device of rank `rank` of `ranks`, which take devices from `first` on: threads of one process
/// by their rank, processes by device_of_process().
int device_of_rank(int first, int rank, int ranks);

/// The device of a process that sees `shown` devices: by its place on its machine, unless its
/// launcher shows it one device only. Throws Error that names the rank if there is no such device.
int device_of_process(int first, const LaunchedAs& launched, int shown);

}  // namespace winnow::parallel

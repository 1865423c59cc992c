// How long launches take on a device, without the gaps between them.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "base/cuda/graph.h"

namespace winnow {

/// Median milliseconds, over `samples` samples of `replays` replays each, of a replay of the work
/// that `launches` puts into the stream. Two more samples before them warm up.
inline double time_graph(const cuda::Stream& stream, const std::function<void()>& launches,
                         int replays = 1, int samples = 9) {
  constexpr int kWarmUp = 2;
  const cuda::Graph graph(stream, launches);
  std::vector<double> times;
  for (int sample = 0; sample < samples + kWarmUp; ++sample) {
    cuda::Event begin;
    cuda::Event end;
    begin.record(stream);
    for (int replay = 0; replay < replays; ++replay) {
      graph.launch(stream);
    }
    end.record(stream);
    times.push_back(end.milliseconds_since(begin) / replays);
  }
  times.erase(times.begin(), times.begin() + kWarmUp);
  std::ranges::nth_element(times, times.begin() + samples / 2);
  return times[static_cast<std::size_t>(samples / 2)];
}

}  // namespace winnow

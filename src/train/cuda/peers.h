// The ranks of a training run on devices: they read each other's memory.
#pragma once

#include <optional>
#include <type_traits>
#include <vector>

#include "parallel/cuda/device_ranks.h"

namespace winnow::train::cuda {

/// Each rank makes one; all call its functions together. A rank that fails takes its memory with
/// it: others that still read it may report an illegal access before they learn its reason.
class Peers {
 public:
  /// `host` must outlive this. `device`: this rank's.
  Peers(parallel::Communicator& host, int device) : host_(host) {
    if (host.size() > 1) {
      host.meet();  // others may still begin
      devices_.emplace(host, device);
    }
  }

  [[nodiscard]] int rank() const { return host_.rank(); }
  [[nodiscard]] int size() const { return host_.size(); }
  /// Waits for the host threads of all ranks.
  void meet() const { host_.meet(); }

  /// The pointers that the ranks pass, by rank.
  template <class T>
  [[nodiscard]] std::vector<T*> addresses_of(T* own) const {
    if (!devices_) {
      return {own};
    }
    meet();  // others may still be loading
    std::vector<T*> all;
    for (void* address : devices_->exchange(const_cast<std::remove_const_t<T>*>(own))) {
      all.push_back(static_cast<T*>(address));
    }
    return all;
  }

 private:
  parallel::Communicator& host_;
  std::optional<parallel::cuda::DeviceRanks> devices_;  // of several ranks
};

}  // namespace winnow::train::cuda

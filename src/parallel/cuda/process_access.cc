#include "parallel/cuda/process_access.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/cuda/device.h"
#include "base/error.h"
#include "parallel/all_values.h"

namespace winnow::parallel::cuda {
namespace {

// What one process shows another of its memory.
struct Handle {
  cudaIpcMemHandle_t allocation = {};  // that contains the memory
  std::uint64_t offset = 0;            // of the memory in it
  bool exists = false;
};

using FindRange = decltype(&cuMemGetAddressRange_v2);

// Queried from the running driver: the program is not linked against it. Null if it has none.
FindRange find_range() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned kVersion = 12000;
  const cudaError_t code = cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function,
                                                            kVersion, cudaEnableDefault, &found);
  return code == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<FindRange>(function)
             : nullptr;
}

// Never throws: the other ranks wait for the answer.
Handle handle_of(void* memory) {
  static const FindRange range_of = find_range();
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  CUdeviceptr base = 0;
  Handle handle;
  if (memory == nullptr || range_of == nullptr ||
      range_of(&base, nullptr, address) != CUDA_SUCCESS ||
      cudaIpcGetMemHandle(&handle.allocation, reinterpret_cast<void*>(base)) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  handle.offset = address - base;
  handle.exists = true;
  return handle;
}

bool are_equal(const cudaIpcMemHandle_t& one, const cudaIpcMemHandle_t& other) {
  return std::memcmp(&one, &other, sizeof(one)) == 0;
}

class ProcessAccess final : public PeerAccess {
 public:
  explicit ProcessAccess(Communicator& host) : host_(host) {}

  [[nodiscard]] std::vector<Memory> exchange(Memory own) override {
    return open_all(all_values(host_, handle_of(own.get())), own);
  }

  /// The memory that the handles show, by rank.
  [[nodiscard]] std::vector<Memory> open_all(const std::vector<Handle>& handles,
                                             const Memory& own) {
    std::vector<Memory> all;
    for (std::size_t rank = 0; rank < handles.size(); ++rank) {
      const bool is_own = rank == static_cast<std::size_t>(host_.rank());
      all.push_back(is_own ? own : open(handles[rank], rank));
    }
    return all;
  }

  // A process must not free memory that another one has open.
  void release(std::vector<Memory>& all) override {
    winnow::cuda::check(cudaDeviceSynchronize(), "wait for a device");
    host_.meet();
    const Memory own = all.empty() ? nullptr : all[static_cast<std::size_t>(host_.rank())];
    all.clear();
    host_.meet();
  }

  [[nodiscard]] bool drops_alone() const override { return false; }

 private:
  // Another rank's allocation.
  struct Opened {
    std::size_t rank;
    cudaIpcMemHandle_t handle;
    std::weak_ptr<void> memory;
  };

  [[nodiscard]] Memory open(const Handle& handle, std::size_t rank) {
    require(handle.exists, "rank {}: its device memory cannot be shared", rank);
    std::erase_if(opened_, [](const Opened& other) { return other.memory.expired(); });
    const auto found = std::ranges::find_if(opened_, [&](const Opened& other) {
      return other.rank == rank && are_equal(other.handle, handle.allocation);
    });
    Memory allocation = found != opened_.end() ? found->memory.lock() : nullptr;
    if (allocation == nullptr) {
      void* address = nullptr;
      winnow::cuda::check(
          cudaIpcOpenMemHandle(&address, handle.allocation, cudaIpcMemLazyEnablePeerAccess),
          "open another process's device memory");
      allocation = Memory(address, [](void* memory) { cudaIpcCloseMemHandle(memory); });
      opened_.push_back({rank, handle.allocation, allocation});
    }
    return {allocation, static_cast<std::byte*>(allocation.get()) + handle.offset};
  }

  Communicator& host_;
  std::vector<Opened> opened_;
};

// Of this start of this machine's kernel; zeros if it is not known.
std::array<char, 36> boot_id() {
  std::array<char, 36> id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), id.size());
  return id;
}

bool are_on_one_machine(Communicator& host) {
  const auto ids = all_values(host, boot_id());
  return ids.front() != std::array<char, 36>{} &&
         std::ranges::all_of(ids, [&](const auto& id) { return id == ids.front(); });
}

// Whether all ranks could open memory of each other. What fails on one rank must not keep it from
// answering the others.
bool can_share(ProcessAccess& access, Communicator& host) {
  PeerAccess::Memory own;
  try {
    own = winnow::cuda::allocate(1);
  } catch (const Error&) {
    own = nullptr;  // then its handle shows nothing
  }
  const auto handles = all_values(host, handle_of(own.get()));
  int can = own != nullptr ? 1 : 0;
  std::vector<PeerAccess::Memory> all;
  try {
    all = access.open_all(handles, own);
  } catch (const Error&) {
    cudaGetLastError();  // clears it
    can = 0;
  }
  const auto answers = all_values(host, can);
  all.clear();
  host.meet();  // all have closed this rank's memory
  return std::ranges::find(answers, 0) == answers.end();
}

}  // namespace

std::unique_ptr<PeerAccess> make_process_access(Communicator& host) {
  if (!are_on_one_machine(host)) {
    return nullptr;
  }
  auto access = std::make_unique<ProcessAccess>(host);
  return can_share(*access, host) ? std::move(access) : nullptr;
}

}  // namespace winnow::parallel::cuda

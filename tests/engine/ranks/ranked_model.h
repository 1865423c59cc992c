// A random model that several ranks of this process run together.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/cpu_runner.h"
#include "engine/ranks/member.h"
#include "engine/ranks/ranked_backend.h"
#include "model/model.h"
#include "parallel/thread_ranks.h"

namespace winnow::engine::testing {

class RankedModel {
 public:
  using Wrap = std::function<std::unique_ptr<const Backend>(std::unique_ptr<const Backend>)>;

  /// The weights equal model::random_weights(spec, type, seed) of a single rank. `wrap` (may be
  /// empty) replaces the backend of rank 0's part.
  RankedModel(const model::ModelSpec& spec, DType type, std::uint64_t seed, int ranks,
              const std::optional<kvcache::DrawnDecisions>& drawn, const Wrap& wrap = {})
      : spec_(spec), ranks_(parallel::make_thread_ranks(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      const model::Shard shard{rank, ranks};
      parts_.push_back(std::make_unique<model::Model>(
          model::shard_spec(spec, shard), model::random_weights(spec, type, seed, {}, shard),
          model::ModelPart{shard, spec}));
      if (drawn) {
        parts_.back()->draw_decisions(*drawn);
      }
    }
    for (std::size_t rank = 1; rank < parts_.size(); ++rank) {
      threads_.emplace_back([this, rank] {
        const CpuBackend local(*parts_[rank], ranks_[rank].get());
        Member member(local, spec_, {static_cast<int>(rank), static_cast<int>(parts_.size())});
        try {
          obey_first(member, *ranks_[rank]);
        } catch (const Error&) {  // rank 0 throws it, too
        }
      });
    }
    std::unique_ptr<const Backend> first =
        std::make_unique<CpuBackend>(*parts_[0], ranks_[0].get());
    backend_ =
        make_ranked_backend(wrap ? wrap(std::move(first)) : std::move(first), spec, *ranks_[0]);
  }

  [[nodiscard]] const Backend& backend() const { return *backend_; }

 private:
  model::ModelSpec spec_;
  std::vector<std::unique_ptr<parallel::Communicator>> ranks_;
  std::vector<std::unique_ptr<model::Model>> parts_;
  std::vector<std::jthread> threads_;
  std::unique_ptr<Backend> backend_;  // ends the threads
};

}  // namespace winnow::engine::testing

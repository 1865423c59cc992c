#include "train/cuda/sharded_weights.h"

#include "train/cuda/copies.h"

namespace winnow::train::cuda {

ShardedWeights::ShardedWeights(const model::ModelSpec& spec, const Parameters& parameters,
                               const RankParts& parts, const Peers& peers, LayerSlots& slots,
                               const winnow::cuda::Stream& stream)
    : StudentWeights(spec, parameters, parts, peers, stream),
      gradients_(held_.size()),
      vector_gradients_(parts.size() - parts.matrices()),
      vector_gradients_of_rank_(peers.addresses_of<const float>(vector_gradients_.data())),
      matrices_(parts, slots, stream),
      matrix_gradients_(peers, parts, stream, gradients_.data()) {
  matrices_.set_held(held_of_ranks_.of_rank);
}

float* ShardedWeights::gradient(const Parameter& parameter) const {
  return is_matrix(parameter) ? matrix_gradients_.address_of(parameter)
                              : vector_gradients_.data() + (parameter.offset - parts_.matrices());
}

void ShardedWeights::begin_update() {
  matrix_gradients_.complete();  // of a pass that no update follows
  clear_async(gradients_, stream_.get());
  clear_async(vector_gradients_, stream_.get());
  // Sums of other streams add to the gradients: not before they are zero.
  stream_.synchronize();
}

void ShardedWeights::add_up() {
  matrix_gradients_.complete();
  stream_.synchronize();
  peers_.meet();  // all gradients are complete
  parallel::cuda::Parts of_ranks;
  parts_.for_pieces_of(
      parts_.rank(), parts_.vectors(), [&](std::size_t at, std::size_t held, std::size_t count) {
        for (std::size_t rank = 0; rank < vector_gradients_of_rank_.size(); ++rank) {
          of_ranks.of[rank] = vector_gradients_of_rank_[rank] + (at - parts_.matrices());
        }
        parallel::cuda::sum_complete_parts(of_ranks, peers_.size(), gradients_.data() + held, true,
                                           count, stream_.get());
      });
}

void ShardedWeights::end_update() {
  matrices_.forget();
  stream_.synchronize();
  peers_.meet();  // all have updated their parts
  gather_vectors();
  stream_.synchronize();
  peers_.meet();  // all have read
}

}  // namespace winnow::train::cuda

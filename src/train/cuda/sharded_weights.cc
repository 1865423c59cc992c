#include "train/cuda/sharded_weights.h"

#include "train/cuda/copies.h"

namespace winnow::train::cuda {

ShardedWeights::ShardedWeights(const model::ModelSpec& spec, const Parameters& parameters,
                               const RankParts& parts, const Peers& peers, LayerSlots& slots,
                               const winnow::cuda::Stream& stream)
    : StudentWeights(spec, parameters, parts, peers, stream),
      gradients_(held_.size()),
      vector_gradients_(parts.size() - parts.matrices()),
      vector_gradients_of_ranks_(peers.share(vector_gradients_.data())),
      matrices_(peers, parts, slots, stream),
      matrix_gradients_(peers, parts, stream, gradients_.data()) {
  matrices_.set_held(held_of_ranks_);
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
  peers_.settle(stream_);  // all gradients are complete
  add_own_parts(peers_, parts_, vector_gradients_of_ranks_, parts_.vectors(), gradients_.data(),
                stream_.get());
}

void ShardedWeights::end_update() {
  matrices_.forget();
  peers_.settle(stream_);  // all have updated their parts
  gather_vectors();
  peers_.settle(stream_);  // all have read
}

}  // namespace winnow::train::cuda

// A head that drafts for another model, its target: what it computes beyond a decoder of one layer.
#pragma once

#include <vector>

namespace winnow::model {

/// A head of EAGLE-3 (Li et al. 2025). Row i is the target's token i + 1 and the target's stream at
/// token i: after several of its layers, side by side, which a matrix maps to the head's own width
/// (fused). Attention takes the token's embedding and the stream, each normed, side by side; the
/// rest is a layer like others, and its logits are guesses at token i + 2. In place of the target's
/// stream a row may have the head's own of the row before, to guess one token further.
struct DraftHeadSpec {
  std::vector<int> after;       // it takes the target's stream after so many layers each
  int target_hidden = 0;        // channels of that stream
  int vocab = 0;                // tokens that it can draft
  bool own_embedding = false;   // files have embeddings; else they are the target's
  bool norms_inputs = false;    // an RMSNorm of all inputs side by side, before they are fused
  bool norms_residual = false;  // the residual stream is what attention takes, normed
  bool norms_output = false;    // what it hands to the next row has had the final norm

  /// What it takes of the target for a row.
  [[nodiscard]] int inputs() const { return target_hidden * static_cast<int>(after.size()); }

  bool operator==(const DraftHeadSpec&) const = default;
};

}  // namespace winnow::model

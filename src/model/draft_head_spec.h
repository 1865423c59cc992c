// A head that drafts for another model, its target: what it computes beyond a decoder of one layer.
#pragma once

#include <cstdint>
#include <vector>

namespace winnow::model {

/// Row i of a head is the target's token i + 1 and the target's stream at token i, and its logits
/// are guesses at token i + 2. In place of the target's stream a row may have the head's own of the
/// row before, to guess one token further.
///
/// EAGLE-3 (Li et al. 2025): the stream after several of the target's layers, side by side, which a
/// matrix maps to the head's own width (fused). Attention takes the token's embedding and the
/// stream, each normed, side by side; the rest is a layer like others.
///
/// MTP (multi-token prediction, DeepSeek-AI 2024): the stream after the target's last layer. A
/// matrix fuses the token's embedding and the stream, each normed; then comes a layer of the
/// target's kind, a norm and the target's own output matrix.
struct DraftHeadSpec {
  enum class Kind : std::uint8_t { eagle, mtp };
  Kind kind = Kind::eagle;
  std::vector<int> after;       // it takes the target's stream after so many layers (StreamStates)
  int target_hidden = 0;        // channels of that stream
  int vocab = 0;                // tokens that it can draft
  bool own_embedding = false;   // files have embeddings; else they are the target's
  bool own_output = true;       // files have an output matrix; else it is the target's
  bool own_norm = true;         // files have a final norm; else it is the target's
  bool norms_inputs = false;    // an RMSNorm of all inputs side by side, before they are fused
  bool norms_residual = false;  // the residual stream is what attention takes, normed
  bool norms_output = false;    // what it hands to the next row has had the final norm
  bool stream_first = false;    // MTP fuses the stream and the embedding, in this order

  /// What it takes of the target for a row.
  [[nodiscard]] int inputs() const { return target_hidden * static_cast<int>(after.size()); }
  /// Whether attention takes embedding and stream; else they are fused.
  [[nodiscard]] bool widens_attention() const { return kind == Kind::eagle; }
  /// What the matrix that fuses takes, in a head of this width.
  [[nodiscard]] int fused(int hidden) const { return inputs() + (widens_attention() ? 0 : hidden); }

  bool operator==(const DraftHeadSpec&) const = default;
};

}  // namespace winnow::model

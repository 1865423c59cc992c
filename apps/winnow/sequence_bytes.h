// The memory that a sequence's cache takes.
#pragma once

#include "model/spec.h"
#include "ops/kv_page.h"

namespace winnow::cli {

/// How much a model compresses its cache.
struct Compression {
  double ratio = 1.0;   // measured on texts, or for tokens outside the window: a retrofit's target
  double window = 0.0;  // entries that a head always keeps
  bool beside_window = false;  // the ratio is a target, for tokens outside the window
};

struct SequenceBytes {
  double dense = 0.0;
  double compressed = 0.0;
};

/// Bytes for `tokens` tokens, including states of recurrent layers.
SequenceBytes sequence_bytes(const model::ModelSpec& spec, ops::EntryFormat format, double tokens,
                             const Compression& compression);

}  // namespace winnow::cli

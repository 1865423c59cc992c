// The memory that a sequence's cache takes.
#pragma once

#include "model/spec.h"
#include "ops/kv_page.h"

namespace winnow::cli {

/// How much a model drops from its cache.
struct Compression {
  double ratio = 1.0;   // as measured on texts, or of what has left the window: a retrofit's target
  double window = 0.0;  // entries that a head keeps in any case
  bool beside_window = false;  // the ratio is a target
};

struct SequenceBytes {
  double dense = 0.0;
  double compressed = 0.0;
};

/// Bytes of `tokens` tokens, states of recurrent layers among them.
SequenceBytes sequence_bytes(const model::ModelSpec& spec, ops::EntryFormat format, double tokens,
                             const Compression& compression);

}  // namespace winnow::cli

// Properties of a model that not every runner, device or trainer computes.
#pragma once

#include <string>

#include "model/spec.h"

namespace winnow::model {

/// Names the first thing in `spec` that makes it more than a plain decoder; null if nothing does.
/// The layers of a plain decoder are all alike: RMS norms before each part, RoPE of whole heads,
/// full reach, a SiLU gate, no caps, no multipliers. Fast paths for plain decoders call this.
const char* beyond_plain(const ModelSpec& spec);

/// The first property of `spec` that is computed on the CPU only; null if there is none.
const char* beyond_devices(const ModelSpec& spec);

/// The first property of `spec` that devices do not train; null if there is none.
const char* beyond_device_training(const ModelSpec& spec);

/// The first property of `spec` that is not trained anywhere; null if there is none.
const char* beyond_training(const ModelSpec& spec);

/// Throws Error naming the first property of `spec` that no runner of this version computes
/// (`where`: the file that asks for it).
void require_supported(const ModelSpec& spec, const std::string& where);

/// Throws Error if decisions of the spec's retrofit would borrow channels of latents, which are all
/// needed.
void require_supported_decisions(const ModelSpec& spec, const std::string& where);

}  // namespace winnow::model

// Flags of train and retrofit that the others leave without effect.
#pragma once

#include "apps/winnow/train/flags.h"

namespace winnow::cli {

/// Error naming the first flag that was given and would change nothing.
void refuse_unused(const TrainingFlags& flags);

}  // namespace winnow::cli

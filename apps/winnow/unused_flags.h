// Flags of train and retrofit that other flags make ineffective.
#pragma once

#include "apps/winnow/train/flags.h"

namespace winnow::cli {

/// Error that names the first given flag without an effect.
void refuse_unused(const TrainingFlags& flags);

}  // namespace winnow::cli

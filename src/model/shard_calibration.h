// The part of a calibration that one of several ranks needs.
#pragma once

#include "kvcache/calibration.h"
#include "model/shard.h"

namespace winnow::model {

/// Of the statistics of the model `whole`, those of the rank's query heads.
kvcache::Calibration shard_calibration(const kvcache::Calibration& calibration,
                                       const ModelSpec& whole, const Shard& shard);

}  // namespace winnow::model

#include "ops/cuda/recurrent/delta_rule.h"

#include "ops/cuda/recurrent/delta_rule_kernels.h"

namespace winnow::ops::cuda {

void delta_rule(const DeltaRuleShape& heads, const DeltaRule& rule, const RecurrentRows& rows,
                cudaStream_t stream) {
  check_recurrent(heads, 1);
  if (rows.sequences == 0) {
    return;
  }
  if (rows.firsts == nullptr) {
    launch_delta_step(heads, rule, rows, stream);
  } else {
    launch_delta_chunks(heads, rule, rows, stream);
  }
}

}  // namespace winnow::ops::cuda

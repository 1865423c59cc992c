#include "model/decision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/adapter.h"
#include "model/channels.h"

namespace winnow::model {
namespace {

// DMS decisions. A head's score is what `scores` has in its column; under "layer" granularity head
// 0 decides for all.
void set_by_scores(const ModelSpec& spec, const Decisions& decisions,
                   ops::Matrix<const float> scores, ColumnOf column_of) {
  const DmsConfig& dms = *spec.dms;
  for (std::size_t h = 0; h < decisions.flags.cols; ++h) {
    const std::size_t column = column_of(spec, dms.per_layer ? 0 : h);
    for (std::size_t t = 0; t < decisions.flags.rows; ++t) {
      const float logit = dms.scale * scores.row(t)[column] - dms.offset;
      decisions.logits.row(t)[h] = logit;
      decisions.flags.row(t)[h] = dms.evict && logit > 0.0F ? 1 : 0;
    }
  }
}

}  // namespace

void decide_by_adapter(ops::Context& context, const ModelSpec& spec, const AdapterWeights& adapter,
                       ops::Matrix<const float> hidden, std::span<const std::int32_t> positions,
                       const Decisions& decisions) {
  const ops::Workspace::Scope scope(*context.workspace);
  const std::size_t heads = decisions.flags.cols;
  const ops::Matrix<float> x(context.workspace->take<float>(hidden.rows * heads).data(),
                             hidden.rows, heads);
  apply_adapter(context, spec, adapter, hidden, x);
  set_by_scores(spec, decisions, x, [](const ModelSpec&, std::size_t head) { return head; });
  for (std::size_t t = 0; t < positions.size(); ++t) {
    if (positions[t] < spec.dms->keeps_first) {
      std::ranges::fill(decisions.flags.row(t), 0);
      std::ranges::fill(decisions.logits.row(t), -std::numeric_limits<float>::infinity());
    }
  }
}

void decide_by_channel(const ModelSpec& spec, ops::Matrix<const float> queries,
                       ops::Matrix<const float> keys, const Decisions& decisions) {
  if (spec.dms) {
    return set_by_scores(spec, decisions, queries, query_column);
  }
  for (std::size_t h = 0; h < decisions.flags.cols; ++h) {
    const std::size_t deciding = spec.dmc->per_layer ? 0 : h;
    const std::size_t alpha = key_column(spec, deciding);
    const std::size_t omega = query_column(spec, deciding);
    for (std::size_t t = 0; t < decisions.flags.rows; ++t) {
      const float alpha_logit = keys.row(t)[alpha] - spec.dmc->offset;
      decisions.flags.row(t)[h] = alpha_logit > 0.0F ? 1 : 0;
      decisions.omegas.row(t)[h] = 1.0F / (1.0F + std::exp(-queries.row(t)[omega]));
    }
  }
}

}  // namespace winnow::model

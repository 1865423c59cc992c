#include "train/document_scan.h"

#include "ops/causal_conv.h"

namespace winnow::train::detail {
namespace {

ops::DeltaRuleChunk chunk_of(const ops::DeltaRuleChunk& batch, const Document& document) {
  const auto rows = [&document](auto x) { return x.slice(document.first, document.last); };
  return {.queries = rows(batch.queries),
          .keys = rows(batch.keys),
          .values = rows(batch.values),
          .decays = rows(batch.decays),
          .rates = rows(batch.rates),
          .state = {},
          .out = {}};
}

}  // namespace

std::vector<Document> documents_of(std::span<const std::int32_t> first_key) {
  std::vector<Document> documents;
  for (std::size_t t = 0; t < first_key.size(); ++t) {
    if (static_cast<std::size_t>(first_key[t]) == t) {
      documents.push_back({t, t});
    }
    documents.back().last = t + 1;
  }
  return documents;
}

void convolve(std::span<const Document> documents, ops::Matrix<float> out,
              ops::Matrix<const float> x, std::span<const float> taps,
              std::span<const float> bias) {
  for (const auto& [first, last] : documents) {
    std::vector<float> tail(taps.size() - x.cols, 0.0F);
    ops::causal_conv(out.slice(first, last), x.slice(first, last), taps, bias, tail);
  }
}

void convolve_backward(std::span<const Document> documents, ops::Matrix<float> dx,
                       std::span<float> dtaps, ops::Matrix<const float> dout,
                       ops::Matrix<const float> x, std::span<const float> taps) {
  for (const auto& [first, last] : documents) {
    ops::causal_conv_backward(dx.slice(first, last), dtaps, dout.slice(first, last),
                              x.slice(first, last), taps);
  }
}

void scan(const ops::DeltaRuleShape& heads, std::span<const Document> documents,
          const ops::DeltaRuleChunk& batch) {
  const auto size = static_cast<std::size_t>(heads.state_size());
  std::vector<float> states(documents.size() * size, 0.0F);
  std::vector<ops::DeltaRuleChunk> chunks;
  for (const Document& document : documents) {
    ops::DeltaRuleChunk chunk = chunk_of(batch, document);
    chunk.state = std::span(states).subspan(chunks.size() * size, size);
    chunk.out = batch.out.slice(document.first, document.last);
    chunks.push_back(chunk);
  }
  ops::delta_rule(heads, chunks);
}

void scan_backward(const ops::DeltaRuleShape& heads, std::span<const Document> documents,
                   const ops::DeltaRuleChunk& batch, ops::Matrix<const float> dout,
                   const ops::DeltaRuleGradients& gradients) {
  std::vector<ops::DeltaRuleChunk> chunks;
  std::vector<ops::Matrix<const float>> douts;
  std::vector<ops::DeltaRuleGradients> parts;
  for (const Document& document : documents) {
    const auto rows = [&document](auto x) { return x.slice(document.first, document.last); };
    chunks.push_back(chunk_of(batch, document));
    douts.push_back(rows(dout));
    parts.push_back({.queries = rows(gradients.queries),
                     .keys = rows(gradients.keys),
                     .decays = rows(gradients.decays),
                     .rates = rows(gradients.rates),
                     .values = rows(gradients.values)});
  }
  ops::delta_rule_backward(heads, chunks, douts, parts);
}

}  // namespace winnow::train::detail

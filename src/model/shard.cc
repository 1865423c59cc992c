#include "model/shard.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace winnow::model {
namespace {

void split(AttentionSpec& attention, const Shard& shard) {
  const HeadShare own = share_of_kv_heads(attention.kv_heads, shard);
  const Range queries = share_of_queries(attention, shard);
  if (attention.kv_heads < shard.ranks) {
    const int group = attention.group();
    attention.group_share = {group, queries.begin - own.kv_heads.begin * group};
  }
  attention.heads = queries.size();
  attention.kv_heads = own.kv_heads.size();
}

void split(RecurrentSpec& recurrent, const Shard& shard) {
  ops::DeltaRuleShape& heads = recurrent.heads;
  const int key_heads = share_of(heads.key_heads, shard).size();
  heads.value_heads = heads.value_heads / heads.key_heads * key_heads;
  heads.key_heads = key_heads;
}

void split(FeedForwardSpec& network, const Shard& shard) {
  network.intermediate = share_of_width(network.intermediate, shard).size();
  if (network.experts) {
    int& shared = network.experts->shared_intermediate;
    shared = share_of_width(shared, shard).size();
  }
}

void require_enough(int count, const char* what, const Shard& shard) {
  require(count >= shard.ranks, "{} {} do not split over {} ranks: use at most {}", count, what,
          shard.ranks, count);
}

}  // namespace

Range share_of(int total, const Shard& shard, int unit) {
  const std::int64_t runs = total / unit;
  const auto at = [&](int rank) { return static_cast<int>(runs * rank / shard.ranks) * unit; };
  return {at(shard.rank), at(shard.rank + 1)};
}

Range share_of_width(int width, const Shard& shard) {
  constexpr int kGroup = 32;  // of quantised weights' groups
  const bool in_groups = width % kGroup == 0 && width / kGroup >= shard.ranks;
  constexpr std::array kRuns{256, 128, 64, 32, 16, 8, 4, 2, 1};
  const auto equal = std::ranges::find_if(kRuns, [&](int run) {
    return width % run == 0 && width / run % shard.ranks == 0 && (!in_groups || run >= kGroup);
  });
  return share_of(width, shard, equal != kRuns.end() ? *equal : in_groups ? kGroup : 1);
}

HeadShare share_of_kv_heads(int kv_heads, const Shard& shard) {
  if (kv_heads >= shard.ranks) {
    return {.kv_heads = share_of(kv_heads, shard), .holders = {}};
  }
  // The head to whose ranks, share_of(ranks, {head, kv_heads}), this one belongs.
  const int head = ((shard.rank + 1) * kv_heads - 1) / shard.ranks;
  const Range ranks = share_of(shard.ranks, {head, kv_heads});
  return {.kv_heads = {head, head + 1}, .holders = {shard.rank - ranks.begin, ranks.size()}};
}

int holders_of(int head, int kv_heads, int ranks) {
  return kv_heads >= ranks ? 1 : share_of(ranks, {head, kv_heads}).size();
}

Range share_of_queries(const AttentionSpec& whole, const Shard& shard) {
  const HeadShare own = share_of_kv_heads(whole.kv_heads, shard);
  const Range of_group = share_of(whole.group(), own.holders);
  return {own.kv_heads.begin * whole.group() + of_group.begin,
          (own.kv_heads.end - 1) * whole.group() + of_group.end};
}

Range share_of_heads(const LayerSpec& layer, const Shard& shard) {
  if (const AttentionSpec* attention = layer.attention()) {
    return share_of_kv_heads(attention->kv_heads, shard).kv_heads;
  }
  return share_of(std::get<RecurrentSpec>(layer.mixer).heads.key_heads, shard);
}

std::vector<Range> share_of_channels(const RecurrentSpec& recurrent, const Shard& shard) {
  const ops::DeltaRuleShape& heads = recurrent.heads;
  const Range own = share_of(heads.key_heads, shard);
  const int values = heads.value_width() / heads.key_heads;  // per key head
  const auto keys_from = [&](int first) {
    return Range{first + own.begin * heads.key_dim, first + own.end * heads.key_dim};
  };
  const int first_value = 2 * heads.key_width();
  return {keys_from(0),
          keys_from(heads.key_width()),
          {first_value + own.begin * values, first_value + own.end * values}};
}

std::vector<Range> share_of_state(const RecurrentSpec& recurrent, const Shard& shard) {
  const ops::DeltaRuleShape& heads = recurrent.heads;
  const Range own = share_of(heads.key_heads, shard);
  const int each = heads.state_size() / heads.key_heads;
  std::vector<Range> ranges{{own.begin * each, own.end * each}};
  for (int tap = 0; tap + 1 < recurrent.taps; ++tap) {
    const int first = heads.state_size() + tap * recurrent.channels();
    for (const Range& channels : share_of_channels(recurrent, shard)) {
      ranges.push_back({first + channels.begin, first + channels.end});
    }
  }
  return ranges;
}

ModelSpec shard_spec(const ModelSpec& whole, const Shard& shard) {
  ModelSpec part = whole;
  for (LayerSpec& layer : part.layers) {
    require(
        layer.recurrent() == nullptr || layer.recurrent()->kind != RecurrentSpec::Kind::state_space,
        "state spaces (Mamba 2) do not split over ranks: their outputs are normed together");
    if (auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
      require(!attention->latent || shard.ranks == 1,
              "latent attention does not split over ranks yet");
      require_enough(attention->heads, "query heads", shard);
      require(
          attention->query_key_norm != AttentionSpec::QueryKeyNorm::whole || !layer.norm.centers(),
          "LayerNorm over all heads together does not split over ranks");
      split(*attention, shard);
    } else {
      auto& recurrent = std::get<RecurrentSpec>(layer.mixer);
      require_enough(recurrent.heads.key_heads, "recurrent heads", shard);
      split(recurrent, shard);
    }
    require_enough(layer.feed_forward.intermediate, "columns of a feed-forward network", shard);
    split(layer.feed_forward, shard);
  }
  part.vocab = share_of(part.vocab, shard).size();
  return part;
}

}  // namespace winnow::model

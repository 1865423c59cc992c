#include "engine/truncation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace winnow::engine {
namespace {

constexpr float kLeftOut = -std::numeric_limits<float>::infinity();

struct Choice {
  std::size_t token;
  double probability;
};

// Tokens that can be drawn, the most probable first, the smaller id first among equals.
std::vector<Choice> choices_of(double temperature, std::span<const float> logits) {
  std::vector<Choice> choices;
  float largest = kLeftOut;
  for (const float logit : logits) {
    largest = logit > largest ? logit : largest;
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp((double{logits[i]} - double{largest}) / temperature);
    if (p > 0.0) {
      choices.push_back({i, p});
      sum += p;
    }
  }
  std::ranges::for_each(choices, [sum](Choice& choice) { choice.probability /= sum; });
  std::ranges::stable_sort(choices, std::ranges::greater{}, &Choice::probability);
  return choices;
}

// Removes all but the first `count`.
void keep_first(std::span<const Choice> choices, std::size_t count, std::span<float> logits) {
  std::vector<float> kept;
  for (const Choice& choice : choices.first(count)) {
    kept.push_back(logits[choice.token]);
  }
  std::ranges::fill(logits, kLeftOut);
  for (std::size_t i = 0; i < count; ++i) {
    logits[choices[i].token] = kept[i];
  }
}

double surprise(double probability) {
  return -std::log2(probability);
}

// How steeply probabilities fall: the exponent of Zipf's law fitted to the first of them (equation
// 30 of the paper).
double zipf_exponent(std::span<const Choice> choices) {
  constexpr std::size_t kMostChoices = 100;
  double products = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i + 1 < std::min(choices.size(), kMostChoices); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * std::log(choices[i].probability / choices[i + 1].probability);
    squares += t * t;
  }
  return squares > 0.0 ? products / squares : 1.0;
}

}  // namespace

void keep_typical(double p, double temperature, std::span<float> logits) {
  std::vector<Choice> choices = choices_of(temperature, logits);
  double entropy = 0.0;
  for (const Choice& choice : choices) {
    entropy += choice.probability * surprise(choice.probability);
  }
  std::ranges::stable_sort(choices, std::ranges::less{}, [entropy](const Choice& choice) {
    return std::abs(surprise(choice.probability) - entropy);
  });
  double sum = 0.0;
  std::size_t count = 0;
  while (count < choices.size() && sum < p) {
    sum += choices[count++].probability;
  }
  keep_first(choices, count, logits);
}

void exclude_top_choices(double threshold, double temperature, std::span<float> logits) {
  const std::vector<Choice> choices = choices_of(temperature, logits);
  for (std::size_t i = 0; i + 1 < choices.size() && choices[i + 1].probability >= threshold; ++i) {
    logits[choices[i].token] = kLeftOut;
  }
}

void Mirostat::truncate(double temperature, std::span<float> logits) const {
  const std::vector<Choice> choices = choices_of(temperature, logits);
  if (choices.empty()) {
    return;
  }
  std::size_t count = 0;
  if (rule_.version == 2) {
    while (count < choices.size() && surprise(choices[count].probability) <= most_) {
      ++count;
    }
  } else {  // equation 31
    const double s = zipf_exponent(choices);
    const double epsilon = s - 1.0;
    const double n = static_cast<double>(choices.size());
    const double k = std::pow(epsilon * std::exp2(most_) / (1.0 - std::pow(n, -epsilon)), 1.0 / s);
    count = std::isfinite(k) ? static_cast<std::size_t>(std::clamp(k, 1.0, n)) : choices.size();
  }
  keep_first(choices, std::max<std::size_t>(count, 1), logits);
}

void Mirostat::accept(std::size_t token, double temperature, std::span<const float> logits) {
  for (const Choice& choice : choices_of(temperature, logits)) {
    if (choice.token == token) {
      most_ -= rule_.eta * (surprise(choice.probability) - rule_.tau);
    }
  }
}

}  // namespace winnow::engine

// The cost of a token: the weights that multiply it and the entries that it attends to.
#pragma once

#include "model/spec.h"

namespace winnow::model {

/// Weights that multiply each token: all layers' matrices and the head; the embedding is looked up.
double multiplied_weights(const ModelSpec& spec);

/// Weights that are read to multiply `tokens` tokens, if each takes experts at random.
double read_weights(const ModelSpec& spec, double tokens);

/// The weights of all matrices but the embedding, those of every expert among them.
double stored_weights(const ModelSpec& spec);

/// The same without experts.
double stored_weights_beside_experts(const ModelSpec& spec);

/// The share of a layer's experts that some of `tokens` tokens take, if each takes them at random.
double share_of_experts(const ExpertsSpec& experts, double tokens);

/// Entries that the last of `length` tokens sees, itself included.
double visible_entries(const Reach& reach, double length);

/// The mean of visible_entries over the first `length` tokens, to leading order: length / 2 for
/// full reach.
double mean_visible_entries(const Reach& reach, double length);

/// Entries that KV heads hold together after `length` tokens, when nothing is compressed.
double dense_entries(const ModelSpec& spec, double length);

}  // namespace winnow::model

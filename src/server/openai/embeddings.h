// POST /v1/embeddings
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace winnow::server {

class Service;

/// Answers with a vector for each text. Throws ApiError that names the field at fault.
void embed(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply);

/// The first `dimensions` of a state, with length 1 if `normalises`.
std::vector<float> embedding_of(std::vector<float> state, std::size_t dimensions, bool normalises);

/// Little-endian floats in base64, as OpenAI's clients ask for them.
std::string base64_of(const std::vector<float>& values);

}  // namespace winnow::server

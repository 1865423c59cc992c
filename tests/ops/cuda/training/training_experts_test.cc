// Experts in training on the device, against sums over each expert's tokens in double and the
// CPU's routers.
#include "ops/cuda/training/training_experts.h"

#include <numeric>

#include "ops/cuda/training/training_ops_testing.h"
#include "ops/experts.h"

namespace winnow::ops::cuda::testing {
namespace {

class CudaTrainingExperts : public CudaTrainingOps {};

constexpr Router kTrainedRouters[] = {
    {.count = 6, .active = 2, .score = RouterScore::softmax, .normalized = true},
    {.count = 60, .active = 4, .score = RouterScore::softmax},
    {.count = 33, .active = 3, .score = RouterScore::softmax_of_chosen},
    {.count = 16, .active = 1, .score = RouterScore::sigmoid},
    {.count = 40, .active = 5, .score = RouterScore::sigmoid, .normalized = true},
    {.count = 16, .active = 2, .score = RouterScore::sparse_mixer, .nearness = 0.4F}};

template <class T>
std::vector<T> read_back(const T* from, std::size_t count) {
  std::vector<T> values(count);
  winnow::cuda::check(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost),
                      "read");
  return values;
}

// Tokens on the device, many of which use the first experts and none the last one, and their
// routes as the host reads them.
struct RoutedBatch {
  RoutedBatch(const Router& router, int rows) : tokens{router, {}, rows} {
    memory.reserve(router, rows);
    tokens.routes = memory.view();
    stride = router.count + 3;
    logits = draw(static_cast<std::size_t>(rows * stride), 3);
    bias = draw(static_cast<std::size_t>(router.count), 4, 0.3);
    bias.front() += 2.0F;
    bias.back() -= 100.0F;
    device_logits = upload(logits);
    device_bias = upload(bias);
    route(router, tokens.routes, device_logits.data(), stride, device_bias.data(), rows, nullptr);
    winnow::cuda::check(cudaDeviceSynchronize(), "route");
    const auto places = static_cast<std::size_t>(tokens.places());
    experts = read_back(tokens.routes.experts, places);
    pairs = read_back(tokens.routes.pairs, places);
    weights = read_back(tokens.routes.weights, places);
  }

  [[nodiscard]] std::size_t places() const { return pairs.size(); }
  [[nodiscard]] std::size_t pair(std::size_t place) const {
    return static_cast<std::size_t>(pairs[place]);
  }
  [[nodiscard]] std::size_t token(std::size_t place) const {
    return pair(place) / static_cast<std::size_t>(tokens.router.active);
  }
  [[nodiscard]] std::size_t expert(std::size_t place) const {
    return static_cast<std::size_t>(experts[pair(place)]);
  }

  RoutesMemory memory;
  RoutedTokens tokens;
  int stride = 0;
  std::vector<float> logits;
  std::vector<float> bias;
  DeviceBuffer<float> device_logits;
  DeviceBuffer<float> device_bias;
  std::vector<std::int32_t> experts;
  std::vector<std::int32_t> pairs;
  std::vector<float> weights;
};

// The matrices of every expert, with gaps between them.
struct ExpertNetwork {
  ExpertNetwork(int count, int outputs_of, int inputs_of)
      : outputs(static_cast<std::size_t>(outputs_of)),
        inputs(static_cast<std::size_t>(inputs_of)),
        stride(outputs * inputs + 16),
        bias_stride(outputs + 8),
        weight(draw_bf16(static_cast<std::size_t>(count) * stride, 5)),
        bias(draw(static_cast<std::size_t>(count) * bias_stride, 6)),
        device_weight(upload_bf16(weight)),
        device_bias(upload(bias)) {}

  [[nodiscard]] ExpertMatrices<const bf16> matrices() const {
    return {device_weight.data(), stride,     static_cast<int>(outputs), static_cast<int>(inputs),
            device_bias.data(),   bias_stride};
  }

  std::size_t outputs;
  std::size_t inputs;
  std::size_t stride;
  std::size_t bias_stride;
  std::vector<float> weight;
  std::vector<float> bias;
  DeviceBuffer<bf16> device_weight;
  DeviceBuffer<float> device_bias;
};

void expect_products(const RoutedBatch& batch, const ExpertNetwork& network) {
  const std::size_t places = batch.places();
  const auto x = draw_bf16(places * network.inputs, 7);
  const auto dy = draw_bf16(places * network.outputs, 8);
  std::vector<float> y;
  std::vector<double> dx(places * network.inputs);
  std::vector<double> dweight(network.weight.begin(), network.weight.end());
  std::vector<double> dbias(network.bias.begin(), network.bias.end());
  for (std::size_t place = 0; place < places; ++place) {
    const std::size_t first = batch.expert(place) * network.stride;
    const std::size_t first_bias = batch.expert(place) * network.bias_stride;
    for (std::size_t i = 0; i < network.outputs; ++i) {
      const float* row = &network.weight[first + i * network.inputs];
      double* drow = &dweight[first + i * network.inputs];
      const double gradient = dy[place * network.outputs + i];
      double sum = network.bias[first_bias + i];
      for (std::size_t j = 0; j < network.inputs; ++j) {
        sum += double{row[j]} * x[place * network.inputs + j];
        dx[place * network.inputs + j] += gradient * row[j];
        drow[j] += gradient * x[place * network.inputs + j];
      }
      y.push_back(static_cast<float>(sum));
      dbias[first_bias + i] += gradient;
    }
  }
  const auto narrowed = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const auto device_x = upload_bf16(x);
  const auto device_dy = upload_bf16(dy);
  const auto device_y = poisoned<bf16>(y.size());
  multiply_expert_rows(batch.tokens, device_y.data(), device_x.data(), network.matrices(), nullptr);
  expect_close(download(device_y), y, kRounded, "y");
  const auto device_dx = poisoned<bf16>(dx.size());
  expert_input_gradients(batch.tokens, device_dx.data(), device_dy.data(), network.matrices(),
                         nullptr);
  expect_close(download(device_dx), narrowed(dx), kRounded, "dx");
  const auto device_dweight = upload(network.weight);
  const auto device_dbias = upload(network.bias);
  add_expert_gradients(batch.tokens,
                       {device_dweight.data(), network.stride, static_cast<int>(network.outputs),
                        static_cast<int>(network.inputs), device_dbias.data(), network.bias_stride},
                       device_dy.data(), device_x.data(), nullptr);
  expect_close(download(device_dweight), narrowed(dweight), kExact, "dweight");
  expect_close(download(device_dbias), narrowed(dbias), kExact, "dbias");
}

TEST_F(CudaTrainingExperts, ProductsOfEachExpert) {
  for (const Router& router : kTrainedRouters) {
    for (const int rows : {1, 37, 400}) {
      SCOPED_TRACE(::testing::Message() << router.count << " experts, " << rows << " rows");
      const RoutedBatch batch(router, rows);
      expect_products(batch, ExpertNetwork(router.count, 40, 24));
      expect_products(batch, ExpertNetwork(router.count, 264, 136));
      expect_products(batch, ExpertNetwork(router.count, 128, 256));
    }
  }
}

TEST_F(CudaTrainingExperts, RowsOfTheirTokens) {
  constexpr std::size_t kCols = 1032;
  const RoutedBatch batch(kTrainedRouters[1], 50);
  const auto x = draw_bf16(50 * kCols, 1);
  const auto y = draw_bf16(batch.places() * kCols, 2);
  const ExpertNetwork network(batch.tokens.router.count, kCols, 8);
  const auto device_x = upload_bf16(x);
  const auto device_y = upload_bf16(y);
  for (const bool weighted : {false, true}) {
    std::vector<float> gathered;
    std::vector<double> sums(50 * kCols);
    std::vector<float> products(batch.places());
    std::vector<float> of_bias(batch.places());
    for (std::size_t place = 0; place < batch.places(); ++place) {
      const float weight = weighted ? batch.weights[batch.pair(place)] : 1.0F;
      double product = 0.0;
      double with_bias = 0.0;
      for (std::size_t i = 0; i < kCols; ++i) {
        const double own = y[place * kCols + i];
        gathered.push_back(weight * x[batch.token(place) * kCols + i]);
        sums[batch.token(place) * kCols + i] += weight * own;
        product += to_float(to_bf16(gathered.back())) * own;
        with_bias += own * network.bias[batch.expert(place) * network.bias_stride + i];
      }
      products[batch.pair(place)] = static_cast<float>(product);
      of_bias[batch.pair(place)] = static_cast<float>(product + with_bias);
    }
    const auto rows = poisoned<bf16>(gathered.size());
    gather_expert_rows(batch.tokens, rows.data(), device_x.data(), weighted, kCols, nullptr);
    expect_close(download(rows), gathered, weighted ? kRounded : 0.0, "gathered");
    const auto sum = poisoned<bf16>(sums.size());
    sum_expert_outputs(batch.tokens.router, sum.data(), device_y.data(), batch.tokens.routes,
                       weighted, 50, kCols, nullptr);
    expect_close(download(sum), std::vector<float>(sums.begin(), sums.end()), kRounded, "sums");
    const auto found = poisoned<float>(batch.places());
    expert_row_products(batch.tokens, found.data(), rows.data(), device_y.data(), kCols, nullptr);
    expect_close(download(found), products, kExact, "products");
    add_expert_bias_products(batch.tokens, found.data(), device_y.data(), network.matrices(),
                             nullptr);
    expect_close(download(found), of_bias, kExact, "products with biases");
  }
}

void expect_cpu_gradients(const Router& router) {
  RoutedBatch batch(router, 90);
  const auto count = static_cast<std::size_t>(router.count);
  const auto active = static_cast<std::size_t>(router.active);
  const auto stride = static_cast<std::size_t>(batch.stride);
  auto products = draw(batch.places(), 9);
  std::vector<float> sums;
  for (std::size_t i = 0; i < batch.logits.size(); ++i) {
    if (i % stride < count) {
      sums.push_back(batch.logits[i] + batch.bias[i % stride]);
    }
  }
  std::vector<float> dlogits(sums.size());
  ops::route_backward(router, matrix(dlogits, count),
                      {{batch.experts.data(), 90, active}, {batch.weights.data(), 90, active}},
                      matrix(products, active), matrix(sums, count));
  const auto device_products = upload(products);
  const auto found = poisoned<bf16>(90 * stride);
  route_backward(batch.tokens, found.data(), device_products.data(), batch.device_logits.data(),
                 batch.device_bias.data(), batch.stride, nullptr);
  std::vector<float> padded(90 * stride);
  for (std::size_t i = 0; i < padded.size(); ++i) {
    padded[i] = i % stride < count ? dlogits[i / stride * count + i % stride] : 0.0F;
  }
  expect_close(download(found), padded, kRounded, "dlogits");
}

TEST_F(CudaTrainingExperts, RoutersLearnAsOnTheCpu) {
  for (const Router& router : kTrainedRouters) {
    expect_cpu_gradients(router);
  }
}

TEST_F(CudaTrainingExperts, RoutersLearnWhereExpertsCountNothing) {
  auto scales = draw(60, 10);
  scales[0] = 0.0F;
  scales[3] = 0.0F;
  const auto device_scales = upload(scales);
  for (Router router : kTrainedRouters) {
    router.expert_scale = device_scales.data();
    expect_cpu_gradients(router);
  }
}

TEST_F(CudaTrainingExperts, TheGateOfASharedOne) {
  constexpr std::size_t kRows = 9;
  constexpr std::size_t kCols = 520;
  constexpr std::size_t kStride = 8;
  const auto x = draw_bf16(kRows * kCols, 1);
  const auto gate = draw_bf16(kCols, 2, 0.05);
  const auto device_x = upload_bf16(x);
  const auto device_gate = upload_bf16(gate);
  std::vector<float> logits;
  for (std::size_t t = 0; t < kRows; ++t) {
    logits.push_back(
        static_cast<float>(std::inner_product(gate.begin(), gate.end(), &x[t * kCols], 0.0)));
  }
  const auto device_logits = poisoned<float>(kRows);
  row_logits(device_logits.data(), device_x.data(), device_gate.data(), kRows, kCols, nullptr);
  expect_close(download(device_logits), logits, kExact, "logits");

  auto product = draw_bf16(kRows * kCols, 3);
  const auto device_product = upload_bf16(product);
  gate_rows(device_product.data(), device_logits.data(), kRows, kCols, nullptr);
  ops::gate_rows(matrix(product, kCols), matrix(logits, 1));
  expect_close(download(device_product), product, kRounded, "gated");

  auto dout = draw_bf16(kRows * kCols, 4);
  const auto device_dout = upload_bf16(dout);
  auto gated = download(device_product);
  std::vector<float> products(kRows);
  ops::row_products(products, matrix(gated, kCols), matrix(dout, kCols));
  std::vector<float> dlogits(kRows);
  ops::gate_rows_backward(matrix(dlogits, 1), products, matrix(logits, 1));
  ops::gate_rows(matrix(dout, kCols), matrix(logits, 1));
  const auto device_dlogits = poisoned<bf16>(kRows * kStride);
  gate_rows_backward(device_dlogits.data(), kStride, device_dout.data(), device_product.data(),
                     device_logits.data(), kRows, kCols, nullptr);
  expect_close(download(device_dout), dout, kRounded, "dout");
  const auto found = download(device_dlogits);
  std::vector<float> padded(found.size());
  for (std::size_t t = 0; t < kRows; ++t) {
    padded[t * kStride] = dlogits[t];
  }
  expect_close(found, padded, kRounded, "dlogits");

  const auto before = draw_bf16(kRows * kCols, 5);
  auto dx = before;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    dx[i] += found[i / kCols * kStride] * gate[i % kCols];
  }
  const auto device_dx = upload_bf16(before);
  add_row_logits_gradient(device_dx.data(), device_dlogits.data(), kStride, device_gate.data(),
                          kRows, kCols, nullptr);
  expect_close(download(device_dx), dx, kRounded, "dx");
}

}  // namespace
}  // namespace winnow::ops::cuda::testing

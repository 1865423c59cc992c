// fp8 products of a large batch, from copies of the weights and from weights in the stored order.
#include "model/cuda/large_products.h"

#include <gtest/gtest.h>

#include <array>

#include "base/cuda/on_device.h"
#include "model/model.h"
#include "model/spec_of.h"
#include "ops/cuda/training/training_ops_testing.h"

namespace winnow::model::cuda {
namespace {

using namespace ops::cuda::testing;  // NOLINT(google-build-using-namespace)

class CudaLargeProducts : public winnow::testing::OnDevice<::testing::Test> {};

TEST_F(CudaLargeProducts, InFp8AreTheSameWithCopiesAndWithout) {
  if (!ops::cuda::has_fp8_products()) {
    GTEST_SKIP() << "the device does not multiply fp8";
  }
  const ModelSpec config = winnow::testing::spec_of("llama", {.hidden = 128,
                                                              .layers = 1,
                                                              .heads = 2,
                                                              .kv_heads = 1,
                                                              .head_dim = 64,
                                                              .intermediate = 224,
                                                              .vocab = 1008});
  const Model host(config, random_weights(config, DType::bf16, 3));
  const DeviceModel model(host, ops::cuda::DeviceWeightFormat::fp8);
  const MatrixWeights copies(model, true, Arithmetic::fp8);
  const MatrixWeights in_place(model, false, Arithmetic::fp8);
  LargeProducts library(copies, false);
  LargeProducts own(in_place, false);
  const winnow::cuda::Stream stream;
  constexpr double kFast = 1e-3;            // rounding of tensor cores
  for (const int rows : {112, 256, 320}) {  // the last has too many rows
    for (LargeProducts* products : {&library, &own}) {
      products->reserve(rows, 224);
    }
    const auto& layer = model.weights().layers.front();
    for (const auto* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      const auto view = weight->view();
      const auto size = [&](int cols) {
        return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
      };
      const auto x = upload_bf16(draw(size(view.cols), 1));
      const auto before = draw(size(view.rows), 2);
      const auto results = [&](LargeProducts& products) {
        const auto y = poisoned<float>(before.size());
        const auto rounded = poisoned<bf16>(before.size());
        const auto sum = upload(before);
        products.multiply(y.data(), x.data(), view, rows, stream.get());
        products.multiply(rounded.data(), x.data(), view, rows, stream.get());
        products.multiply_add(sum.data(), {x.data(), {}}, view, rows, stream.get());
        return std::array{download(y), download(rounded), download(sum)};
      };
      const auto expected = results(library);
      const auto found = results(own);
      expect_close(found[0], expected[0], kFast, "float");
      expect_close(found[1], expected[1], kRounded, "bf16");
      expect_close(found[2], expected[2], kFast, "added");
    }
  }
}

}  // namespace
}  // namespace winnow::model::cuda

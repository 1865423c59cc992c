#include "model/cuda/row_choice.h"

namespace winnow::model::cuda {

TokenMasks::TokenMasks(std::size_t rows, std::size_t vocab)
    : words_(ops::mask_words(vocab)), host_(rows * words_), device_(rows * words_) {}

void TokenMasks::place(std::span<const RowChoice> rows,
                       std::span<ops::cuda::SampledRow> placed) const {
  const std::uint64_t* mask = device_.data();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    placed[i] = rows[i].row;
    if (rows[i].allow != nullptr) {
      placed[i].allowed = reinterpret_cast<const std::uint32_t*>(mask);  // low half first
      mask += words_;
    }
  }
}

void TokenMasks::send(std::span<const RowChoice> rows, const winnow::cuda::Stream& stream) {
  std::size_t count = 0;
  for (const RowChoice& row : rows) {
    if (row.allow != nullptr) {
      (*row.allow)(host_.span().subspan(count * words_, words_));
      ++count;
    }
  }
  if (count == 0) {
    return;
  }
  winnow::cuda::check(
      cudaMemcpyAsync(device_.data(), host_.data(), count * words_ * sizeof(std::uint64_t),
                      cudaMemcpyHostToDevice, copies_.get()),
      "copy token masks to the device");
  copied_.record(copies_);
  copied_.hold(stream);
}

}  // namespace winnow::model::cuda

#include "train/line_reader.h"

#include <zstd.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace winnow::train {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 17;
constexpr std::array<unsigned char, 4> kZstdMagic{0x28, 0xB5, 0x2F, 0xFD};

}  // namespace

class LineReader::Decompressor {
 public:
  explicit Decompressor(std::string name) : name_(std::move(name)), stream_(ZSTD_createDCtx()) {
    require(stream_ != nullptr, "{}: out of memory", name_);
  }
  ~Decompressor() { ZSTD_freeDCtx(stream_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  void append(std::span<const char> compressed, std::string& text) {
    ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
    // When the output buffer is full, the decompressor may hold more.
    for (bool full = false; full || in.pos < in.size;) {
      ZSTD_outBuffer out{memory_.data(), memory_.size(), 0};
      left_ = ZSTD_decompressStream(stream_, &out, &in);
      require(ZSTD_isError(left_) == 0, "{}: not valid zstd: {}", name_, ZSTD_getErrorName(left_));
      text.append(memory_.data(), out.pos);
      full = out.pos == out.size;
    }
  }

  void finish() const { require(left_ == 0, "{}: ends inside a compressed frame", name_); }

 private:
  std::string name_;
  ZSTD_DCtx* stream_;
  std::size_t left_ = 0;
  std::vector<char> memory_ = std::vector<char>(kReadBytes);
};

LineReader::LineReader(std::filesystem::path path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "rb"), std::fclose) {
  require_system(file_ != nullptr, "{}: cannot open", path_.string());
  buffer_.resize(kReadBytes);
  std::array<unsigned char, 4> magic{};
  const std::size_t count = std::fread(magic.data(), 1, magic.size(), file_.get());
  std::rewind(file_.get());
  if (count == magic.size() && magic == kZstdMagic) {
    decompressor_ = std::make_unique<Decompressor>(path_.string());
  }
}

LineReader::~LineReader() = default;

bool LineReader::read_more() {
  const std::size_t count = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  require_system(std::ferror(file_.get()) == 0, "{}: cannot read", path_.string());
  bytes_read_ += static_cast<std::int64_t>(count);
  text_.erase(0, std::exchange(begin_, 0));
  if (decompressor_ == nullptr) {
    text_.append(buffer_.data(), count);
  } else {
    decompressor_->append({buffer_.data(), count}, text_);
    if (count == 0) {
      decompressor_->finish();
    }
  }
  return count > 0;
}

bool LineReader::next(std::string& line) {
  std::size_t searched = begin_;
  std::size_t end = text_.find('\n', searched);
  while (end == std::string::npos) {
    searched = text_.size() - begin_;
    if (!read_more()) {
      if (begin_ == text_.size()) {
        return false;
      }
      end = text_.size();  // the last line may lack a newline
      break;
    }
    end = text_.find('\n', searched);
  }
  line.assign(text_, begin_, end - begin_);
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  begin_ = std::min(end + 1, text_.size());
  ++number_;
  return true;
}

}  // namespace winnow::train

// Files that are written as a whole or not at all, and their permissions.
#include "checkpoint/atomic_file.h"

#include <sys/stat.h>

#include <iterator>

#include "checkpoint/checkpoint_testing.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;
using fs::perms;

constexpr perms kOwner = perms::owner_read | perms::owner_write;
constexpr perms kReadable = kOwner | perms::group_read | perms::others_read;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() : umask_(::umask(022)) {}
  ~AtomicFileTest() override { ::umask(umask_); }

  void write(const std::string& text, FileAccess access = FileAccess::by_umask) const {
    AtomicFile file(path_, access);
    file.write(text);
    file.commit();
    EXPECT_EQ(directory_.read("file"), text);
  }
  [[nodiscard]] perms mode() const { return fs::status(path_).permissions(); }

  TempDir directory_;
  fs::path path_ = directory_.path() / "file";

 private:
  ::mode_t umask_;
};

TEST_F(AtomicFileTest, ANewOneIsReadableAsTheUmaskSaysOrByItsOwnerOnly) {
  write("by umask");
  EXPECT_EQ(mode(), kReadable);
  fs::remove(path_);
  write("secret", FileAccess::owner_only);
  EXPECT_EQ(mode(), kOwner);
}

TEST_F(AtomicFileTest, AReplacedOneKeepsItsPermissions) {
  for (const perms kept : {kOwner, kReadable, kReadable | perms::group_write, perms::owner_read}) {
    for (const FileAccess access : {FileAccess::by_umask, FileAccess::owner_only}) {
      fs::remove(path_);
      directory_.write("file", "before");
      fs::permissions(path_, kept);
      write("after", access);
      EXPECT_EQ(mode(), kept);
    }
  }
}

TEST_F(AtomicFileTest, WithoutCommitEverythingIsAsItWas) {
  directory_.write("file", "before");
  {
    AtomicFile file(path_);
    file.write("half of");
  }
  EXPECT_EQ(directory_.read("file"), "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1);
}

}  // namespace
}  // namespace winnow

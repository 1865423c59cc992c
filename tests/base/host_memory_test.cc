#include "base/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace winnow {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMib = std::size_t{1} << 20;

/// The files of a machine of 64 MiB, 48 of them available.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal: 65536 kB\nMemFree: 1 kB\nMemAvailable:   49152 kB\n");
  }
  ~HostMemoryTest() override { fs::remove_all(root_); }
  HostMemoryTest(const HostMemoryTest&) = delete;
  HostMemoryTest& operator=(const HostMemoryTest&) = delete;

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void expect(std::size_t total, std::size_t available) {
    const HostMemory memory = read_host_memory(root_);
    EXPECT_EQ(memory.total, total * kMib);
    EXPECT_EQ(memory.available, available * kMib);
  }

 private:
  fs::path root_ = fs::path(::testing::TempDir()) /
                   ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(HostMemoryTest, IsTheMachinesWithoutControlGroups) {
  expect(64, 48);
}

TEST_F(HostMemoryTest, IsTheMachinesWhereGroupsHaveNoLimit) {
  write("proc/self/cgroup", "0::/user.slice/a\n");
  write("sys/fs/cgroup/user.slice/a/memory.max", "max\n");
  write("sys/fs/cgroup/user.slice/a/memory.current", "1048576\n");
  expect(64, 48);
  write("proc/self/cgroup", "5:devices:/\n4:memory:/\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect(64, 48);
}

TEST_F(HostMemoryTest, AGroupOfVersion2LimitsIt) {
  write("proc/self/cgroup", "0::/pods/pod1/winnow\n");
  const std::string group = "sys/fs/cgroup/pods/pod1/winnow/";
  write(group + "memory.max", "33554432\n");
  write(group + "memory.current", "20971520\n");
  write(group + "memory.stat", "anon 4194304\ninactive_file 2097152\nactive_file 6291456\n");
  expect(32, 20);
}

TEST_F(HostMemoryTest, AGroupAboveLimitsItToo) {
  write("proc/self/cgroup", "0::/pods/pod1/winnow\n");
  write("sys/fs/cgroup/pods/pod1/winnow/memory.max", "max\n");
  write("sys/fs/cgroup/pods/memory.max", "16777216\n");
  expect(16, 16);
}

TEST_F(HostMemoryTest, AGroupOfVersion1LimitsIt) {
  write("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/1234\n0::/\n");
  // A container sees its own group at the top, and the host's path.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "25165824\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4194304\n");
  write("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 2097152\n");
  expect(24, 22);
}

TEST_F(HostMemoryTest, AFullGroupHasNothingAvailable) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1048576\n");
  write("sys/fs/cgroup/memory.current", "2097152\n");
  expect(1, 0);
}

TEST(HostMemory, ThisMachineHasSome) {
  EXPECT_GT(total_host_memory(), kMib);
  EXPECT_LE(available_host_memory(), total_host_memory());
}

}  // namespace
}  // namespace winnow

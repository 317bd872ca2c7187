# SPDX-License-Identifier: Apache-2.0
# Installs the headers and what find_package(zero) reads. Each component has an export of its own,
# zero-<component>-targets.cmake, so a component exists exactly where its file was installed.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(zero_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/zero")

install(TARGETS zero EXPORT zero-core-targets FILE_SET HEADERS)
install(EXPORT zero-core-targets NAMESPACE zero:: DESTINATION "${zero_package_dir}")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/zero-config.cmake.in" "${PROJECT_BINARY_DIR}/zero-config.cmake"
  INSTALL_DESTINATION "${zero_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/zero-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(
  FILES "${PROJECT_BINARY_DIR}/zero-config.cmake" "${PROJECT_BINARY_DIR}/zero-config-version.cmake"
  DESTINATION "${zero_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

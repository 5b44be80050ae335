"""Every model has a name, a colour and a marker of its own."""

from robust_diffusion.config import CONFIG_DIR
from robust_diffusion.paper.axes import MODELS
from robust_diffusion.paper.figures.draw import LOOKS, look_of


def test_no_two_models_look_alike() -> None:
    files = [*CONFIG_DIR.glob("flow/*.yaml"), *CONFIG_DIR.glob("model/*.yaml")]
    named = {path.stem for path in files} | MODELS.keys()
    assert named - LOOKS.keys() == {"graph_pde"}  # goes by its flow
    looks = [LOOKS[name] for name in named & LOOKS.keys()]
    assert len({(look.marker, look.colour) for look in looks}) == len(looks)
    assert len({look.label for look in looks}) == len(looks)


def test_a_model_of_the_user_goes_by_its_own_name() -> None:
    assert look_of("my_flow") == look_of("my_flow")
    assert look_of("my_flow").label == "my_flow"
    assert look_of("Mean curvature") is look_of("mean_curvature")
